"""GuidedMixup: the objective, and what it is guided by (AUM, saliencies, neighbours, balanced batches)."""
