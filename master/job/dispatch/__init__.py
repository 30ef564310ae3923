"""Dispatch of positions: how much a lease holds, how far leases may go, which positions are left out for good.

The positions themselves are in `state.dispatch_state`.
"""
