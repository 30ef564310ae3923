"""From raw objects to the domain: pure functions, one file per kind.

They never raise on what the API server lets pass: what they do not understand makes a pod `is_modelled=False`, or a
requirement that no node meets.  The one exception is `jobs`: a TrainingJob whose CRD is older than EDL may hold what
EDL would have refused, and says so by InvalidSpecError with the field's path.  The other way is `building`.
"""
