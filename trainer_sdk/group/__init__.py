"""Groups: trainers that each hold the whole model and all-reduce their gradients (rules 63 to 96).

`port` says what a framework layer gives and gets.
"""
