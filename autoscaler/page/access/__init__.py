"""Who is let in, and how far: connections, checks of requests, viewers and their rights, what each has under way.

No page is known here.
"""
