"""``python -m extender`` is the command line."""

from extender.faces.commands.main import main

if __name__ == "__main__":
    main()
