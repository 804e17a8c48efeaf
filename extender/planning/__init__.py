"""Plans: pods and nodes on forks of a cluster, decided by the code of the verbs. Nothing is written."""
