"""Reward-hacking programs, and honest programs that look similar."""
