"""Mutation testing of the decisions and of their shells: `make mutants` (ADR 0501).

A mutant is the product with one small fault planted: a comparison turned, a write left out, two lines swapped.  Each
mutant of a seeded sample runs against the tests that reach its function; one that no test notices has survived.

- `operators`: which faults there are (pure)
- `targets`: which modules are mutated, and how the sample is drawn (pure)
- `imports`: which files of tests import which modules
- `reach`: which tests reach which function, measured once by coverage
- `trial`: one mutant against its tests, in a copy of the tree
- `warm`: tests in forks of a process that has imported them
- `report`: the score, and the survivors with a reason each (`docs/reports/mutants.json`, `docs/reports/mutants.md`)
"""
