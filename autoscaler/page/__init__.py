"""The page: who has the cluster, what for, why, and what next, for people with a browser.

`page_source` is what the page reads and `access.viewers` who may read it, both ports: `edl run` and the operator have
adapters.  `page_app` serves what `autoscaler.views` computes: `content` puts it through `templates/`, `answers` sends
it once, and `live` keeps open pages current.  Nothing is changed there but by the one form of `answers.keeping`.
"""
