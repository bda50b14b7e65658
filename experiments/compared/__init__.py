"""The systems that the paper compares prototypical networks with, each as a Task or a classifier of protojax.

They share its data, loop, evaluation and checkpoints: a system is what is different in it, and no more. What the papers
leave open was chosen in short trials on the validation classes, of which there are no records.
"""
