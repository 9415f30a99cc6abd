"""Pathfinder and Path-X: are two dots joined by a dashed curve?"""
