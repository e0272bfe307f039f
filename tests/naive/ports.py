"""One server and the work that comes to it: Lindley's recursion, and processor sharing."""


def fifo(times, works):
    """When each job is done, s; jobs come at times (n,) s, ascending, with works (n,) s."""
    done, free = [], 0.0
    for time, work in zip(times, works, strict=True):
        free = max(free, time) + work
        done.append(free)
    return done


def fair(times, works):
    """As fifo, but n jobs that are there at once are each served at 1/n of the speed."""
    left, done, now = {}, [0.0] * len(times), 0.0
    for i, (coming, work) in enumerate([*zip(times, works, strict=True), (float("inf"), 0.0)]):
        while left:
            first = min(left, key=left.get)
            ends = now + left[first] * len(left)
            if ends > coming:
                break
            left = {k: rest - left[first] for k, rest in left.items() if k != first}
            done[first], now = ends, ends
        left = {k: rest - (coming - now) / len(left) for k, rest in left.items()}
        left[i], now = work, coming
    return done
