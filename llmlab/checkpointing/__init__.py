"""Which tensors to keep for the gradient, which to compute again, and what that costs and saves.

    policies    a policy is a set of tensors to keep: none, selective, full
    schedule    graph and kept tensors become a flat list of actions, as data
    timeline    replays a schedule with sizes: memory over time, and its peak
    placement   an offset in one arena for every tensor of a schedule
"""
