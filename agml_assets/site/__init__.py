"""Over all datasets: the files of the AgML site, and what several datasets share."""
