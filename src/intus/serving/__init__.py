"""The servers: the aggregator gathers records into complete data points, the evaluator scores them, the
frontend keeps the scores and serves the page. No framework is imported here."""
