"""Dispatch of positions: lease size, high-water mark, quarantine by SKIP.

The positions themselves are in `state.dispatch_state`.
"""
