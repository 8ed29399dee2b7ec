"""Storage: records and graphs as bytes (``codec``), scores in a database (``database``)."""
