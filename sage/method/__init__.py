"""What a method is made of: guides, anchors, advantages, credit, rewards and planners.

Pure functions of tensors and small classes around them. `sage.training` calls them within a step.
What is the paper's own or shared is here; what another paper adds is a file of `sage.rivals`. A
study is read without torch: it is imported where something is computed, and never with a module.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

__all__ = ["Tensor"]
