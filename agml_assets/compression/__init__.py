"""How much a compressed embedding keeps: submissions, labelled tasks, probes, scores, ranks."""
