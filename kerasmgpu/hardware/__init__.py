"""What is known of GPUs: their data sheets, and what their driver reports."""
