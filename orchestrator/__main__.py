"""Run the command line as `python -m orchestrator`."""

from orchestrator.faces.cli.app import main

if __name__ == "__main__":
    main()
