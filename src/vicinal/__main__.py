"""`python -m vicinal`, and so `torchrun --nproc_per_node 2 -m vicinal`."""

from vicinal.cli import main

if __name__ == "__main__":
    main()
