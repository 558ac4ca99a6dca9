"""The memory policy of loops over integers: which states and tapes a loop holds, and what it runs again.

Steps are counted from 0. *State k* is what step k starts from. The *tape* of a step is the state it starts from and its
residuals, all that its backward pass reads. Sizes are exact bytes. Nothing here knows of tensors, graphs or the engine.

| module | holds |
|---|---|
| `reach` | how many steps some room serves, what reversing them costs, and where to save the next state |
| `actions` | the rows of integers that a schedule is made of, in chunks |
| `gaps` | the backward pass: the rows that reverse the steps between saved states |
| `loops` | the forward pass: a loop of known length, and one that is open |
| `budget` | a memory or a number of states as room; the least that works |

`unspool.Checkpointed` runs loops by these rows.
"""
