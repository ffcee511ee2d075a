"""What commands share: options, messages, progress, figures."""
