"""The frameworks people already train with: Hugging Face, Lightning, scikit-learn and torchmetrics.

Each module needs its framework and imports it at once; nothing else in vicinal does.
"""
