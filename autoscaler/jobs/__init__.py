"""The life of a training job beside its sizes, wherever it runs: `life` decides, `masters` asks how far a job is."""
