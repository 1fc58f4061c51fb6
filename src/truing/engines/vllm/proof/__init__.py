"""The proof of a publication: does a server sample with the weights that were sent to it?"""
