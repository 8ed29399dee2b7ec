"""Training scripts as a user would write them, with intus's few lines; ``intus examples`` runs them."""
