"""The operator process: settings, probes, kopf, and the program that leads or stands by."""
