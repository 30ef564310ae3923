"""The page: who has the cluster, what for, why, and what next, for people with a browser.

`page_source` is what the page reads and `access` who may read it, both ports: `edl run` and the operator have adapters.
`page_app` serves what `autoscaler.views` computes, through `templates/`, and `live_stream` keeps open pages current.
Nothing is changed there but by the one form of `keeping`.
"""
