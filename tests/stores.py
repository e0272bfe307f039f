"""A store of which one table says something else."""

from desim.columns import pieces_of


class ChangedTable:
    """The store, whose table `name` is what `change` makes of its columns or its frame."""

    def __init__(self, store, name, change):
        self.store, self.name, self.change = store, name, change

    def __getattr__(self, name):
        return getattr(self.store, name)

    def pieces(self, name, columns):
        found = self.store.columns(name, columns)
        return pieces_of(self.change(found) if name == self.name else found)

    def table(self, name):
        found = self.store.table(name)
        return self.change(found) if name == self.name else found
