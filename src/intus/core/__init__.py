"""The five nouns that cross the borders between packages: Address, Graph, Record, Score's Results, and
the Selection that picks among them. Needs numpy and the standard library alone."""
