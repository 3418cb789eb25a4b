"""What people want done."""
