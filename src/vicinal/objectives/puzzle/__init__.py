"""PuzzleMix: the objective, and the puzzle that it solves."""
