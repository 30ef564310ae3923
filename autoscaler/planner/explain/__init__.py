"""Why each job has its size: the decisions of a finished plan, whose room is missing, and the sentence for people.

What would change a size is another question, answered by planning anew (`counterfactual`).
"""
