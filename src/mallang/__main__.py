"""`python -m mallang` is the command `mallang`."""

from mallang.commands.main import main

if __name__ == "__main__":
    main()
