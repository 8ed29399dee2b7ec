"""The servers: aggregator, evaluator and frontend.

The aggregator gathers records into complete data points, the evaluator scores these, and the frontend stores
the scores and serves the page. No deep learning framework is imported here.
"""
