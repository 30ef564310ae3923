"""Notices to people's chat and mail: which are due is decided in `due_notices`, what they look like in `messages`.

`webhook` and `mail` bring them, each with a `notice_queue`, and `notice_watch` looks for occasions while an operator
leads.
"""
