"""`python -m torchvet.docgen`."""

from torchvet.docgen.documents import main

if __name__ == "__main__":
    main()
