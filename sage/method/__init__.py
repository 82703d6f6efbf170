"""What a method is made of: guides, anchors, advantages, credit, rewards and planners.

Pure functions of tensors and small classes around them. `sage.training` calls them within a step.
What is the paper's own or shared is here; what another paper adds is a file of `sage.rivals`.
"""
