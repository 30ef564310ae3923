"""Explanation of sizes: the decisions of a finished plan, shortages, and one-line summaries.

What would change a size is another question, answered by more plans (`counterfactual`).
"""
