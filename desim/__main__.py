"""`python -m desim`: the command line."""

from desim.cli import main

if __name__ == "__main__":
    main()
