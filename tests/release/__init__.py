"""What a release consists of: it is built twice, compared, and tried."""
