"""Cache of the watched objects: `reflector` lists and watches each kind into `object_cache`.

`expectations` adds EDL's own writes that no watch has shown yet.
"""
