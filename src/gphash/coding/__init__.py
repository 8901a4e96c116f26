"""Binary codes from supervision: what is similar, and Gibbs sampling of the codes given the Gaussian processes."""
