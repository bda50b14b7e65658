"""What an experiment is made of: its config, its driver, its workdir."""
