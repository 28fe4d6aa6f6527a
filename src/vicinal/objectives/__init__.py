"""One paper's method a file: each an object that turns a model and a batch into a loss."""
