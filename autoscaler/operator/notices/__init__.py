"""Notices to people's chat: which are due is decided in `due_notices`, what they look like in `messages`.

`webhook` sends them, and `notice_watch` looks for occasions while an operator leads.
"""
