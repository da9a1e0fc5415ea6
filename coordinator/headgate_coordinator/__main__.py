"""`python -m headgate_coordinator` is the command `headgate`."""

from headgate_coordinator.cli.entry import main

if __name__ == "__main__":
    main()
